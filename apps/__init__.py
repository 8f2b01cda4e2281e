"""What people look at and talk to: pages, audits, the explorer, judges. They use the product."""
