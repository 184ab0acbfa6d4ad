"""The work that the Django services do, and its paths; the same as work.js."""
import json
import time

from django.http import HttpResponse, JsonResponse
from django.urls import path
from work import count, effect


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
