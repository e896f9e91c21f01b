"""HTTP and WebSocket: routes, schemas, error bodies, the OpenAPI document.

Owns everything on the wire: `gate` (access), `speech` (HTTP), `live` (WebSocket), `reports`.
Does not know tensors, models or scheduling: a request becomes a `SpeechJob` for `app.engine`.
"""
