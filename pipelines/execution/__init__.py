"""How a stage is run: blocks on Beam, parts and receipts, processes, an exchange through a URL."""
