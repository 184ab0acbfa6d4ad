"""fastapi-idempotent with redis. It imports aioredis 2.0.1, which does not load on Python 3.11: redis.asyncio takes its place."""
import os
import sys

import redis.asyncio

sys.modules["aioredis"] = redis.asyncio

from fastapi_idempotent.idempotent import IdempotentMiddleWare  # noqa: E402
from work import make  # noqa: E402

app = make()
app.add_middleware(IdempotentMiddleWare, redis_url=os.environ["REDIS"])
