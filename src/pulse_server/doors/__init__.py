"""The ports of the server: gRPC and HTTP, admission, callers, bounds of calls, lines, TLS.

Every call passes here before its RPC. It knows no job: it imports `settings`, `database`, `access` and
`base`. Only this room and the RPCs speak gRPC. Start with `admission.py`.
"""
