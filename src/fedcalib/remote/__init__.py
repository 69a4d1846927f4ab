"""Federations at a distance: a server, its sites, and the texts between them, over any transport.

- `protocol`: the messages, and the reasons for which a site refuses
- `site`, `policy`, `journal`, `config`: a site's side: what it answers, what it allows, what it writes down
- `sites`, `secure_sum`, `runtime`: the server's side: who is connected, sums under masks, the runtime of a run
"""
