"""fastapi-idempotency as its README starts: in memory, keys of one address together."""
from fastapi_idempotency import IdempotencyMiddleware
from work import make

app = make()
app.add_middleware(IdempotencyMiddleware)
