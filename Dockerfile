# The image of the action: everything that a run needs, pinned, git, and what confines the code under test.
FROM python:3.11-slim-bookworm

# Debian's current git: its old versions leave the archive, so a pinned one would not build for long.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git libseccomp2 \
    && rm -rf /var/lib/apt/lists/* \
    # GitHub mounts the checkout, which is another user's.
    && git config --system --add safe.directory /github/workspace \
    # For what runs a change's code, a user for each side: no rights, no home, no shell. The names are the default of
    # HFEXPORT_WORKERS.
    && useradd --system --no-create-home --shell /usr/sbin/nologin hfexport-worker1 \
    && useradd --system --no-create-home --shell /usr/sbin/nologin hfexport-worker2

# torch by itself: the largest layer, and the one that changes least. This index has the build without CUDA.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG TORCH_VERSION=2.13.0
RUN pip install --no-cache-dir --disable-pip-version-check --index-url "$TORCH_INDEX" "torch==$TORCH_VERSION"

# What else it needs, without the program itself: a release changes none of this, and runners that have it fetch nothing of
# it. The lock holds every version; what only development needs stays out.
WORKDIR /opt/hfexport-bot
COPY pyproject.toml requirements.lock ./
RUN python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > requirements.txt \
    && pip install --no-cache-dir --disable-pip-version-check --constraint requirements.lock --requirement requirements.txt

COPY README.md LICENSE ./
COPY exporters exporters
COPY hfexport_bot hfexport_bot
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps . \
    && hfexport-bot --version

WORKDIR /github/workspace
ENTRYPOINT ["hfexport-bot", "action"]
