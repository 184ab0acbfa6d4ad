"""django-idempotency-key with its default settings: a store in memory, replays with 409. With REDIS set: its store and its lock
in redis, and replays with the first status."""
import os

from django.conf import settings

CACHES, KEYS = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}, {}
if redis := os.environ.get("REDIS"):
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis}}
    KEYS = {
        "STORAGE": {"CLASS": "idempotency_key.storage.CacheKeyStorage", "CACHE_NAME": "default"},
        "LOCK": {"CLASS": "idempotency_key.locks.redis.MultiProcessRedisLock", "LOCATION": redis, "TTL": 5},
        "CONFLICT_STATUS_CODE": None,
    }
settings.configure(
    DEBUG=False,
    SECRET_KEY="x",
    ROOT_URLCONF="django_work",
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["idempotency_key.middleware.IdempotencyKeyMiddleware"],
    CACHES=CACHES,
    IDEMPOTENCY_KEY=KEYS,
)
import django  # noqa: E402

django.setup()
from django.core.wsgi import get_wsgi_application  # noqa: E402

application = get_wsgi_application()
