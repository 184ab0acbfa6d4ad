"""idemkit as its README has it for production: redis, and a scope by header. The lease is 5 s instead of 30 s, so that kills
are judged in seconds."""
import os

from idemkit import HttpConfig, IdempotencyMiddleware, RedisBackend
from work import make

app = make()
config = HttpConfig(scope=lambda request: request.headers.get("x-user-id", "anonymous"), lease_ttl_seconds=5.0)
app.add_middleware(IdempotencyMiddleware, backend=RedisBackend.from_url(os.environ["REDIS"]), config=config)
