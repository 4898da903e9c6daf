from conftest_server import http, runtime, server

__all__ = ["http", "runtime", "server"]
