import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from companion import claims, figures
from companion.__main__ import main


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


fake = _load("fakebook")


@pytest.fixture(autouse=True)
def fresh_names() -> None:
    claims._declared.clear()
    figures._declared.clear()


@pytest.fixture(scope="session", autouse=True)
def one_list_of_fonts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let matplotlib list the fonts once for all books of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLCONFIGDIR", str(tmp_path_factory.mktemp("matplotlib")))
        yield


@pytest.fixture
def book(tmp_path: Path) -> Any:
    root = tmp_path / "my book"
    root.mkdir()
    return fake.FakeBook(root)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Call the command in this process: exit code, output, error output."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return int(end.value.code or 0), out, err

    return call
