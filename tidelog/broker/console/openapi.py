"""The description of the API, made of the table of routes.

Owns how a route's declaration becomes OpenAPI. Source: OpenAPI 3.1.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tidelog.broker.console.route import ApiRoute

_REFERENCE: Final = "#/components/schemas/{name}"
ITEM: Final = "x-item-schema"
"""The schema of each event or line of a stream. OpenAPI has a name for it from 3.2 on."""
ERROR_STATUSES: Final = {
    "400": "A parameter is missing or invalid, or the broker refuses it.",
    "401": "Authentication is required.",
    "403": "The permission is missing, or the console is read-only.",
    "404": "What the parameters name does not exist.",
    "408": "The body arrived too late.",
    "409": "What the parameters name is in a state that forbids it.",
    "413": "The body is too large.",
    "429": "Too many failed attempts from this address.",
    "500": "The broker had an unexpected error, which its log shows.",
    "503": "Try again later.",
}


class Problem(msgspec.Struct, frozen=True):
    """The body of a refusal: the error, and why the request has no answer."""

    code: str
    """The name of an error of Kafka's protocol."""
    message: str


def describe(routes: Sequence[ApiRoute], version: str) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    types = [Problem, *(route.parameters for route in routes), *(route.answer for route in routes)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    parameters, answers = schemas[1 : len(routes) + 1], schemas[len(routes) + 1 :]
    for schema in components.values():
        if "properties" in schema:  # An answer has what is described, and nothing else.
            schema["additionalProperties"] = False
    paths: dict[str, dict[str, Any]] = {}
    described = set()
    for route, reference, answer in zip(routes, parameters, answers, strict=True):
        name = reference["$ref"].rpartition("/")[2]
        described.add(name)
        operation = _operation(route, components[name], answer, schemas[0])
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidelog's console", "version": version},
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in components.items() if name not in described},
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"password": []}, {"token": []}],
    }


def _operation(route: ApiRoute, asked: dict[str, Any], answer: Any, problem: Any) -> dict[str, Any]:
    in_path, required = route.path_names, asked.get("required", [])
    elsewhere = {name: each for name, each in asked["properties"].items() if name not in in_path}
    text = "Done." if route.is_change else "What the broker sees."
    schema = {"schema": {"type": "string"}, ITEM: answer} if route.stream else {"schema": answer}
    answered = {"description": text, "content": {route.stream or "application/json": schema}}
    refusals = {
        status: {"description": reason, "content": {"application/json": {"schema": problem}}}
        for status, reason in ERROR_STATUSES.items()
    }
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": asked["properties"][name]}
            for name in in_path
        ],
        "responses": {"200": answered, **refusals},
    }
    if route.is_change:
        body = {"type": "object", "properties": elsewhere, "additionalProperties": False}
        body["required"] = [name for name in required if name in elsewhere]
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    else:
        operation["parameters"] += [
            {"name": name, "in": "query", "required": name in required, "schema": each}
            for name, each in elsewhere.items()
        ]
    return operation
