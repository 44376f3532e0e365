# One file, a target per image:
#   docker build --target controller -t quorate:0.1.0 .
#   docker build --target operator -t quorate-operator:0.1.0 .
ARG BASE=python:3.13-slim

# --- what is installed, in environments of their own ------------------------------------------------
FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY services services
COPY operator operator
RUN python3 -m venv /opt/controller && /opt/controller/bin/pip install .
RUN python3 -m venv /opt/operator && /opt/operator/bin/pip install ".[operator]"
# What is needed at runtime only: no pip, and byte code so that a read-only root starts fast.
RUN for env in controller operator; do \
        /opt/$env/bin/python -m pip uninstall -y -q pip; \
        find /opt/$env -name '__pycache__' -prune -exec rm -rf {} +; \
        /opt/$env/bin/python -m compileall -q -j 0 /opt/$env/lib; \
    done

# --- what both images share -------------------------------------------------------------------------
FROM ${BASE} AS runtime
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 GRPC_VERBOSITY=NONE
USER 10001:10001
WORKDIR /tmp

FROM runtime AS operator
COPY --from=build /opt/operator /opt/operator
ENV PATH=/opt/operator/bin:$PATH
ENTRYPOINT ["python", "-m", "quorate_operator.main"]

# The last target is what a build without --target makes.
FROM runtime AS controller
COPY --from=build /opt/controller /opt/controller
ENV PATH=/opt/controller/bin:$PATH
EXPOSE 9093
ENTRYPOINT ["python", "-m", "quorate.cli.main"]
CMD ["controller"]
