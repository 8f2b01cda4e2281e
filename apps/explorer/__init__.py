"""A local app to look at labels and models, and to review them: search, disagreements, ratings."""
