"""Web services on Liftbridge: FastAPI, Starlette and aiohttp, each in the module of its name.

Each needs the extra of its name and is imported by nothing else of the package.
"""
