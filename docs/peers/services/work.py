"""The work that the FastAPI services do; the same as work.js."""
import asyncio
import os
import secrets

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse

FILE = os.environ["EFFECTS"]


def count():
    try:
        with open(FILE) as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


def effect():
    charge = "ch_" + secrets.token_hex(6)
    file = os.open(FILE, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(file, (charge + "\n").encode())
    os.close(file)
    return charge


def make():
    app = FastAPI()

    async def charge(request: Request):
        if request.headers.get("x-fail"):
            return JSONResponse({"error": "failed before the effect"}, 500)
        try:
            body = await request.json()
        except ValueError:
            return JSONResponse({"error": "no JSON"}, 400)
        await asyncio.sleep(float(request.headers.get("x-slow", "15")) / 1000)
        charge = effect()
        if after := request.headers.get("x-fail-after"):
            return JSONResponse({"error": "failed after the effect"}, int(after))
        return JSONResponse({"id": charge, "amount": body.get("amount")}, 201, headers={"Location": f"/charges/{charge}"})

    app.post("/charges")(charge)
    app.post("/refunds")(charge)

    @app.get("/charges/count")
    async def read():
        return PlainTextResponse(str(count()))

    return app
