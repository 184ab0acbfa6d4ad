"""Stripe's SDK for Python as it comes. With KEY=intent the program gives the name of the intent as the key, with RETRIES=N it retries."""
import os
import sys
from urllib.parse import urlsplit

import stripe

url, intent = urlsplit(os.environ["ONCEWARD_URL"]), os.environ["ONCEWARD_INTENT"]
retries = int(os.environ["RETRIES"]) if "RETRIES" in os.environ else None
client = stripe.StripeClient("sk_test_none", base_addresses={"api": f"http://{url.netloc}"}, max_network_retries=retries)
options = {"idempotency_key": intent} if os.environ.get("KEY") == "intent" else {}
try:
    params = {"amount": 1200, "currency": "eur", "metadata": {"intent": intent}}
    client.v1.payment_intents.create(params, options)
except stripe.StripeError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
