"""django-idempotency-key with its default settings: a store in memory, replays with 409. With REDIS set: its store and its lock
in redis, and replays with the first status."""
import json
import os
import time

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
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["idempotency_key.middleware.IdempotencyKeyMiddleware"],
    CACHES=CACHES,
    IDEMPOTENCY_KEY=KEYS,
)
import django  # noqa: E402

django.setup()
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpResponse, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from work import count, effect  # noqa: E402


def read(request):
    return HttpResponse(str(count()), content_type="text/plain")


def charge(request):
    if request.headers.get("x-fail"):
        return JsonResponse({"error": "failed before the effect"}, status=500)
    body = json.loads(request.body)
    time.sleep(float(request.headers.get("x-slow", "15")) / 1000)
    charge = effect()
    if after := request.headers.get("x-fail-after"):
        return JsonResponse({"error": "failed after the effect"}, status=int(after))
    response = JsonResponse({"id": charge, "amount": body.get("amount")}, status=201)
    response["Location"] = f"/charges/{charge}"
    return response


def refund(request):
    return charge(request)


urlpatterns = [path("charges", charge), path("refunds", refund), path("charges/count", read)]
application = get_wsgi_application()
