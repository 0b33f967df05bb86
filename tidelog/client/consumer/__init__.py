"""The consumer: what it reads next, how it fetches and converts that, and how it takes part in a group."""
