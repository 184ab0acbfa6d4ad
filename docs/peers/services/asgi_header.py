"""asgi-idempotency-header as its README has it, with redis."""
import os

from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import RedisBackend
from redis.asyncio import Redis
from work import make

app = make()
app.add_middleware(IdempotencyHeaderMiddleware, backend=RedisBackend(redis=Redis.from_url(os.environ["REDIS"])))
