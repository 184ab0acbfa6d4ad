"""urllib3's Retry. By default it does not retry POST after an answer; FORM=post lets it, with its back-off."""
import json
import os
import sys

import urllib3

url, intent = os.environ["ONCEWARD_URL"], os.environ["ONCEWARD_INTENT"]
retry = urllib3.Retry(total=4)
if os.environ.get("FORM") == "post":
    statuses = [429, 500, 502, 503, 504]
    retry = urllib3.Retry(total=4, backoff_factor=0.2, allowed_methods=None, status_forcelist=statuses)
body = json.dumps({"intent": intent, "amount": 12})
headers = {"Idempotency-Key": intent, "Content-Type": "application/json"}
try:
    answer = urllib3.PoolManager().request("POST", url, body=body, headers=headers, retries=retry, timeout=30)
    sys.exit(answer.status >= 400)
except urllib3.exceptions.HTTPError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
