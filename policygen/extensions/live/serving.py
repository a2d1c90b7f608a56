"""The server: one process on loopback, until it is interrupted."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path

from policygen.errors import PlaceError, UsageError
from policygen.extensions.live.folders import run_folders

ADDRESS = "127.0.0.1"


def serve(root: Path, port: int, announce: Callable[[str], None]) -> None:
    """Serve the pages of the runs in `root` until the process is interrupted.

    Args:
        port: 0 chooses a free port.
        announce: called with the address once the server answers.

    Raises:
        UsageError: the web framework is not installed, or the port cannot be used.
        LogbookError: the folder does not exist.
    """
    try:
        import uvicorn

        from policygen.extensions.live.app import application
        from policygen.extensions.live.connections import MOST, Connection
    except ImportError:
        raise UsageError('serving needs more packages; run: pip install "policygen[serve]"') from None
    if not root.is_dir():
        raise PlaceError(f"{root} is not a folder; name a run, or a folder of runs such as results")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, port))
        except OSError as error:
            raise UsageError(f"port {port} cannot be used ({error.strerror}); choose another --port") from None
        listening.listen()
        own = listening.getsockname()[1]
        server = uvicorn.Server(
            uvicorn.Config(
                application(root.resolve(), own),
                lifespan="off",
                log_level="error",
                access_log=False,
                server_header=False,
                ws="none",
                http=Connection,
                limit_concurrency=MOST,
                timeout_graceful_shutdown=1,
            )
        )
        # Requests cut off by stopping the server are not reported.
        logging.getLogger("uvicorn.error").addFilter(lambda record: not server.should_exit)
        count = len(run_folders(root))
        announce(f"http://{ADDRESS}:{own}/ ({count} run{'s' * (count != 1)}; only this machine can open it)")
        server.run(sockets=[listening])
