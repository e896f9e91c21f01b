"""The service on a cluster of Ray: a replica a GPU, and batches of requests spread over workers.

Owns how Ray runs replicas: their resources, health, load, rollout, and the way of bytes to clients.
Does not know how speech is generated, nor how requests are answered: a replica is `create_app`.
Needs `pip install valle-serve[ray]`; nothing else imports it.
"""
