# One file, a target per image:
#   docker build --target controller -t quorate:0.1.0 .
#   docker build --target operator -t quorate-operator:0.1.0 .
ARG BASE=python:3.13-slim

# --- what is installed, in environments of their own ------------------------------------------------
FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
# What others wrote changes rarely: it is installed before our own code is looked at.
COPY pyproject.toml ./
RUN python3 -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
open('controller.txt', 'w').write('\n'.join(p['dependencies'] + p['optional-dependencies']['telemetry'])); \
open('operator.txt', 'w').write('\n'.join(p['dependencies'] + p['optional-dependencies']['operator']))"
RUN for env in controller operator; do \
        python3 -m venv /opt/$env && /opt/$env/bin/pip install -q -r $env.txt \
        && /opt/$env/bin/python -m compileall -q -j 0 /opt/$env/lib || exit 1; \
    done
RUN python3 -m venv /opt/tools && /opt/tools/bin/pip install -q hatchling
COPY README.md LICENSE ./
COPY services services
COPY operator operator
RUN /opt/tools/bin/pip wheel -q --no-deps --no-build-isolation -w /wheels . \
    && for env in controller operator; do \
        /opt/$env/bin/pip install -q --no-deps /wheels/*.whl \
        && /opt/$env/bin/pip uninstall -q -y pip \
        && /opt/$env/bin/python -m compileall -q -j 0 /opt/$env/lib || exit 1; \
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
