# Stands in for GitHub's ubuntu-latest: what the steps of the workflows use, and no more.
FROM python:3.11-slim-bookworm
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*
