"""The microservice: HTTP and a dispatcher in the front process, and an engine process for each device."""
