"""A dataset on the Hugging Face hub: its folder (`folder`), its upload (`push`), and the proof of
both (`check`)."""
