"""The console in a real Chromium, against a real broker.

- `browser`: the Chromium of this machine, and which tests are left out where there is none
- `site`: a broker with its console, a page in the browser, and what every page must satisfy
"""
