# One file, a target per image:
#   docker build --target controller -t quorate:0.1.0 .
#   docker build --target operator -t quorate-operator:0.1.0 .
#   docker build --target broker -t quorate-broker:0.1.0 .          (the chart runs brokers on the controllers' image)
#   docker build --target spark -t quorate-spark:0.1.0 .            (with a JRE and Spark: large)
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

FROM ${BASE} AS spark-build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
COPY pyproject.toml ./
RUN python3 -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
open('spark.txt', 'w').write('\n'.join(p['dependencies'] + p['optional-dependencies']['spark']))" \
    && python3 -m venv /opt/spark && /opt/spark/bin/pip install -q -r spark.txt
COPY --from=build /wheels /wheels
RUN /opt/spark/bin/pip install -q --no-deps /wheels/*.whl && /opt/spark/bin/pip uninstall -q -y pip

FROM ${BASE} AS spark
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-21-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark-build /opt/spark /opt/spark
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PATH=/opt/spark/bin:$PATH HOME=/tmp MPLCONFIGDIR=/tmp
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["python", "-m", "quorate.cli.main"]
CMD ["pipeline", "--help"]

FROM runtime AS operator
COPY --from=build /opt/operator /opt/operator
ENV PATH=/opt/operator/bin:$PATH
ENTRYPOINT ["python", "-m", "quorate_operator.main"]

FROM runtime AS broker
COPY --from=build /opt/controller /opt/controller
ENV PATH=/opt/controller/bin:$PATH
EXPOSE 9092
ENTRYPOINT ["python", "-m", "quorate.cli.main"]
CMD ["broker"]

# The last target is what a build without --target makes.
FROM runtime AS controller
COPY --from=build /opt/controller /opt/controller
ENV PATH=/opt/controller/bin:$PATH
EXPOSE 9093
ENTRYPOINT ["python", "-m", "quorate.cli.main"]
CMD ["controller"]
