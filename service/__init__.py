"""The microservice: HTTP in front, one engine process per device behind, a dispatcher between them."""
