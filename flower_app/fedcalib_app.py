"""The two ends of a federation; all they do is done by the fedcalib that is installed where they run."""

from fedcalib.runtimes.flower import client_app
from fedcalib.runtimes.flower_server import server_app

client = client_app()
server = server_app()
