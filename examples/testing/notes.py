"""A small web service that stores notes in Redis."""

from __future__ import annotations

import os

from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

NOTES = "notes"
redis: Redis = Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)


async def list_notes(_request: Request) -> JSONResponse:
    """Return all notes, the oldest first."""
    return JSONResponse(await redis.lrange(NOTES, 0, -1))


async def add_note(request: Request) -> JSONResponse:
    """Add the note in the body of the request."""
    await redis.rpush(NOTES, (await request.body()).decode())
    return JSONResponse({"added": True}, status_code=201)


app = Starlette(
    routes=[
        Route("/notes", list_notes, methods=["GET"]),
        Route("/notes", add_note, methods=["POST"]),
    ]
)
