"""The two ends of a federation; all they do is done by the fedcalib that is installed where they run."""

from fedcalib.deploy.flower import client_app, server_app

client = client_app()
server = server_app()
