"""Looking at the site on this machine."""

import errno
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from companion import store
from companion.errors import Problem


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: a line per file helps nobody."""


def server(root: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of the built site on 127.0.0.1; port 0 picks a free one."""
    html = store.build_folder(root) / "html"
    if not (html / "index.html").is_file():
        raise Problem("there is no site yet; run `companion build` first")
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(_Quiet, directory=str(html)))
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise Problem(f"port {port} cannot be used; try another with --port, or 0") from None
        raise
    except OverflowError:
        raise Problem(f"there is no port {port}; they go from 0 to 65535") from None
