"""drf-idempotency with its middleware and its default store, the database, here SQLite in a file."""
import os

from django.conf import settings

settings.configure(
    DEBUG=False,
    SECRET_KEY="x",
    ROOT_URLCONF="django_work",
    ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=["drf_idempotency"],
    MIDDLEWARE=["drf_idempotency.middleware.IdempotencyMiddleware"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["EFFECTS"] + ".sqlite"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    IDEMPOTENCY={"LOCK_TTL_SECONDS": 5},
)
import django  # noqa: E402

django.setup()
from django.core.management import call_command  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402

call_command("migrate", verbosity=0)
application = get_wsgi_application()
