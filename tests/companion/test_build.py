"""Building for real, with kernels, on a small book: what works, what breaks, what is killed."""

import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakebook as fake
import nbformat
import pytest

import companion.build
from companion import store

WAITING = fake.cell(
    "import os, pathlib, time\n"
    "pathlib.Path('started').write_text(str(os.getpid()))\n"
    "while not pathlib.Path('go').exists():\n    time.sleep(0.02)"
) + fake.cell("print('ended', n)")


def small(title: str, *codes: str) -> str:
    text = f"# {title}\n\n## Part\n\n" + fake.cell("n = 3", "parameters")
    return text + "".join(map(fake.cell, codes))


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def outputs(notebook: Path) -> str:
    found = nbformat.read(notebook, as_version=4)
    return "".join(o.get("text", "") for c in found.cells for o in c.get("outputs", []))


@pytest.fixture
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute only; the site is tested elsewhere."""
    monkeypatch.setattr(companion.build, "build_site", lambda book, *_, **__: book.root)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A book with a demonstration, a second chapter and a ledger, built once."""
    root = tmp_path_factory.mktemp("a book")
    book = fake.FakeBook(root)
    book.add("part one/demo", fake.DEMO, "profiles:\n  large: {n: 12}")
    book.add("second", small("Second", "import sys\nsys.path.insert(0, '../src')\nprint(n)"))
    book.add("ledger", fake.LEDGER, "after: all")
    done = book.run("build", "--profile", "large")
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stderr == ""
    return book


def executed(output: str) -> set[str]:
    """Return the chapters that were executed, from what `build` printed."""
    lines = [line.split("] ", 1)[1] for line in output.splitlines() if line.startswith("[")]
    return {line.split(" …")[0] for line in lines if not line.endswith("unchanged")}


def test_the_site_is_there(built: Any) -> None:
    html = built.root / "_build" / "html"
    page = (html / "book" / "part one" / "demo.html").read_text()
    assert 'id="fig-parabola"' in page
    assert "Figure 1" in page
    assert 'id="claim-mean-of-square"' in page
    assert "injected" not in page.lower()
    for name in ("parabola.svg", "parabola.pdf", "parabola.csv"):
        assert (html / "_static" / "figures" / name).is_file()
    ledger = (html / "book" / "ledger.html").read_text()
    assert 'href="part%20one/demo.html#claim-mean-of-square"' in ledger
    assert 'href="part%20one/demo.html#fig-parabola"' in ledger
    assert not (built.root / "_build" / "tmp").exists()


def test_the_profile_and_the_parameters_were_used(built: Any) -> None:
    execution = store.executions(built.root)["part one/demo"]
    record = execution.record()
    assert record["profile"] == "large"
    assert record["parameters"] == {"n": 12, "power": 2}
    data = (execution.folder / "figures" / "parabola.csv").read_text()
    assert data.count("\n") == 13
    notebook = json.loads(execution.notebook.read_text())
    assert "papermill" not in notebook["metadata"]
    injected = [
        c for c in notebook["cells"] if "injected-parameters" in c["metadata"].get("tags", [])
    ]
    assert ["remove-cell" in c["metadata"]["tags"] for c in injected] == [True]


def test_a_second_build_does_nothing_and_is_quick(built: Any) -> None:
    page = built.root / "_build" / "html" / "book" / "second.html"
    before = page.stat().st_mtime_ns
    started = time.perf_counter()
    done = built.run("build", "--profile", "large")
    assert time.perf_counter() - started < 3
    assert done.returncode == 0
    assert executed(done.stdout) == set()
    assert "site … unchanged" in done.stdout
    assert page.stat().st_mtime_ns == before


def test_claims_of_a_real_build(built: Any) -> None:
    done = built.run("claims", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    (row,) = json.loads(done.stdout)
    assert row["status"] == "reproduced"
    assert row["profile"] == "large"


def test_figures_with_manifest(built: Any, tmp_path: Path) -> None:
    done = built.run("figures", "--format", "pdf", "--format", "png", "--output", str(tmp_path))
    assert done.returncode == 0
    (entry,) = json.loads((tmp_path / "manifest.json").read_text())
    assert entry["claims"] == []  # the claim is in the next section
    assert entry["chapter"] == "part one/demo"
    assert entry["parameters"] == {"n": 12, "power": 2}
    assert entry["seed"] == 0
    data = (tmp_path / "parabola.csv").read_bytes()
    assert entry["files"]["parabola.csv"] == hashlib.sha256(data).hexdigest()
    assert entry["executed"].startswith("20")
    assert {path.name for path in tmp_path.iterdir()} == {*entry["files"], "manifest.json"}
    assert (tmp_path / "parabola.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_of_ones_own(built: Any, tmp_path: Path) -> None:
    before = (built.root / "_build" / "book.json").read_text()
    done = built.run("run", "demo", "-p", "n", "7", "-p", "power", "2.0", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "mean-of-square" in done.stdout
    assert (tmp_path / "figures" / "parabola.csv").read_text().count("\n") == 8
    nbformat.validate(nbformat.read(tmp_path / "demo.ipynb", as_version=4))
    assert not list(tmp_path.glob(".*"))
    assert (built.root / "_build" / "book.json").read_text() == before


@pytest.mark.parametrize("name", ["parabola", "mean-of-square"])
def test_a_figure_or_claim_names_its_chapter(built: Any, tmp_path: Path, name: str) -> None:
    done = built.run("run", name, "-p", "n", "5", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "figures" / "parabola.csv").read_text().count("\n") == 6
    said = f"The figure is {tmp_path / 'figures' / 'parabola.svg'}\n"
    assert (said in done.stdout) == (name == "parabola")


def test_an_edit_executes_that_chapter_and_what_reads_it(built: Any) -> None:
    built.add("second", small("Second", "print(n + 1)"))
    done = built.run("build", "--profile", "large")
    assert done.returncode == 0
    assert executed(done.stdout) == {"second", "ledger"}
    assert "<span" in (built.root / "_build/html/book/second.html").read_text()


def test_a_warning_fails_the_site_and_the_old_one_stays(built: Any) -> None:
    index = built.root / "book" / "index.md"
    good = index.read_text()
    page = built.root / "_build" / "html" / "book" / "index.html"
    before = page.read_text()
    index.write_text(good + "\nSee {ref}`nowhere`.\n")
    done = built.run("build", "--profile", "large")
    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr
    assert page.read_text() == before
    index.write_text(good)
    done = built.run("build", "--profile", "large")
    assert "site … unchanged" in done.stdout


def test_everything_that_can_break_is_reported_and_the_rest_is_executed(book: Any) -> None:
    wrong_control = (
        "from companion import claims\n"
        "claims.check('a', 'S.', source='derived here', measured=1, expected=1, tolerance=1,\n"
        "    second_method='m', control=claims.Control('the same', measured=1.5))"
    )
    one = wrong_control.replace("measured=1.5", "measured=9")
    book.add("error", small("E", "x = 1\n\ny = x / 0\nz = 3"), "profiles:\n  large: {n: 1}")
    book.add("syntax", small("S", "x = 1\nx = = 2"))
    book.add("endless", small("L", "while True:\n    pass"), "timeout: 1")
    book.add("control", small("C", wrong_control))
    book.add("twice", small("T", one, one))
    book.add("leaves", small("Q", "import sys\nsys.exit()", "print('never')"))
    book.add("dies", small("D", "import os\nos._exit(1)"))
    book.add("fine", small("F", "print('fine')"))
    book.add("ledger", fake.LEDGER, "after: all")
    done = book.run("build", "--profile", "large", "--jobs", "2")
    assert done.returncode == 1
    err = done.stderr
    assert "Traceback" not in err
    for expected in (
        "chapter error, cell 2, line 3 of the cell: ZeroDivisionError: division by zero",
        "chapter syntax, cell 2, line 2 of the cell: SyntaxError",
        "chapter endless, cell 2: Timeout: the cell ran longer than 1 s",
        "chapter control, cell 2, line 2 of the cell: ControlPassed: claim 'a'",
        "chapter twice, cell 3, line 2 of the cell: ValueError: claim id 'a' is declared twice",
        "chapter leaves, cell 3: SystemExit",
        "chapter dies, cell 2: DeadKernel",
        "7 chapters failed; the site was not built (1 not executed)",
    ):
        assert expected in err
    for name in ("error", "syntax", "endless", "control", "twice", "leaves", "dies"):
        partial = book.root / "_build" / "failed" / f"{name}.ipynb"
        assert str(partial) in err
        nbformat.validate(nbformat.read(partial, as_version=4))
        assert not store.executed_folder(book.root, name).exists()
    path = book.root / "book" / "error.md"
    line = path.read_text().splitlines().index("y = x / 0") + 1
    assert f"{path}:{line}" in err
    assert list(store.executions(book.root)) == ["fine"]
    assert not (book.root / "_build" / "html").exists()


def test_fail_fast_stops_the_others(book: Any) -> None:
    book.add("bad", small("B", "1 / 0"))
    book.add("slow", small("S", "import time\ntime.sleep(100)"))
    book.add("never", small("N", "1"))
    done = book.run("build", "--jobs", "2", "--fail-fast")
    assert done.returncode == 1
    assert "1 chapter failed; the site was not built (2 not executed)" in done.stderr


def test_two_chapters_may_not_declare_the_same(book: Any, no_site: None, command: Any) -> None:
    text = (
        "from companion import claims\n"
        "claims.open('same', 'S.', source='derived here', note='Later.')"
    )
    book.add("a", small("A", text))
    book.add("b", small("B", text))
    code, _, err = command("--root", book.root, "build")
    assert (code, err.count("\n")) == (2, 1)
    assert "'same' is declared by both a and b" in err


def test_the_same_results_whatever_the_number_of_jobs(
    book: Any, no_site: None, capsys: Any
) -> None:
    code = (
        "import numpy as np\n"
        "rng = np.random.default_rng(3)\n"
        "a = rng.normal(size=(300, 300))\n"
        "print(repr((a @ a.T).sum()), sorted({'x', 'y', 'zz'}, key=hash))"
    )
    book.add("one", small("One", code, fake.FIGURE.replace("power", "2")))
    book.add("two", small("Two", code))
    made = []
    for jobs in (1, 2):
        companion.build.build(book.root, jobs=jobs, force=True)
        files = {}
        for name, execution in store.executions(book.root).items():
            for path in (execution.notebook, *(execution.folder / "figures").iterdir()):
                files[name, path.name] = path.read_bytes()
        made.append(files)
    assert len(made[0]) == 2 + 5
    assert made[0] == made[1]
    assert capsys.readouterr().out.count("…") == 8


def test_a_killed_build_leaves_nothing_that_counts(book: Any, no_site: None, capsys: Any) -> None:
    book.add("first", small("F", "print('first')") + "The longest begins first. " * 100)
    book.add("wait", small("W") + WAITING)
    build = book.start("build", "--jobs", "1")
    started = book.root / "book" / "started"
    kernel = int(wait_for(lambda: started.exists() and started.read_text()))
    build.send_signal(signal.SIGKILL)
    build.communicate()
    wait_for(lambda: is_gone(kernel), 10)
    assert not store.executed_folder(book.root, "wait").exists()
    assert store.lookup(book.root, "wait", "", "paper") is None

    (book.root / "book" / "go").touch()
    companion.build.build(book.root, jobs=1)
    found = store.executions(book.root)
    assert outputs(found["wait"].notebook) == "ended 3\n"
    assert executed(capsys.readouterr().out) == {"wait"}  # the first had ended before
    assert not (book.root / "_build" / "tmp").exists()

    clean = book.root.parent / "clean"
    shutil.copytree(book.root, clean, ignore=shutil.ignore_patterns("_build"))
    companion.build.build(clean, jobs=2)
    for name, execution in store.executions(clean).items():
        assert execution.notebook.read_bytes() == found[name].notebook.read_bytes()


def test_ctrl_c_ends_everything_and_a_second_build_is_refused(book: Any) -> None:
    book.add("wait", small("W") + WAITING)
    build = book.start("build")
    started = book.root / "book" / "started"
    kernel = int(wait_for(lambda: started.exists() and started.read_text()))
    other = book.run("build")
    assert (other.returncode, other.stderr.count("\n")) == (2, 1)
    assert "another build of this book is running" in other.stderr
    build.send_signal(signal.SIGINT)
    _, err = build.communicate(timeout=20)
    assert build.returncode == 130
    assert err.strip() == "companion: stopped"
    wait_for(lambda: is_gone(kernel), 10)
    assert not store.executed_folder(book.root, "wait").exists()


def test_a_worker_that_is_killed_is_a_failed_chapter(book: Any) -> None:
    book.add("wait", small("W") + WAITING)
    build = book.start("build")
    started = book.root / "book" / "started"
    kernel = int(wait_for(lambda: started.exists() and started.read_text()))
    parent = int(Path(f"/proc/{kernel}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)
    _, err = build.communicate(timeout=20)
    assert build.returncode == 1
    assert "chapter wait" in err
    assert "Traceback" not in err


def test_new_data_beside_a_chapter_execute_it_again(book: Any, no_site: None, command: Any) -> None:
    code = "from pathlib import Path\nprint(Path('reader.json').read_text())"
    book.add("reader", small("Reader", code))
    data, copy = (book.root / "book" / f"reader.{kind}" for kind in ("json", "ipynb"))

    def build() -> set[str]:
        status, out, _ = command("--root", book.root, "build")
        assert status == 0
        return executed(out)

    data.write_text("[1]")
    copy.write_text("{}")  # a reader's own copy: no data
    assert "reader" in build()
    copy.write_text("{ }")
    assert build() == set()
    data.write_text("[2]")
    assert build() == {"reader"}
