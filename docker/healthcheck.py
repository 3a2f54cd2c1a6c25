"""Check that the service in this container is alive: exit status 0 or 1. Imports no service code, which is slow."""

import http.client
import os
import sys

connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("STENO_PORT", "8000")), timeout=2)
try:
    connection.request("GET", "/healthz")
    sys.exit(connection.getresponse().status != http.client.OK)
except OSError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
