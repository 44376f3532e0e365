# One file, a target per image:
#   docker build --target controller -t quorate:0.1.0 .
#   docker build --target operator -t quorate-operator:0.1.0 .
#   docker build --target broker -t quorate-broker:0.1.0 .          (the chart runs brokers on the controllers' image)
#   docker build --target spark -t quorate-spark:0.1.0 .            (with a JRE and Spark: large)
# What PyPI gives is pinned in requirements/ (`poe lock`), the base below. Where no registry is reachable, and for a base that is
# newer than the pinned one: --build-arg BASE=python:3.13-slim. `docker buildx imagetools inspect python:3.13-slim` prints the
# digest to pin. Two builds of one commit have the same content (`poe image-diff`).
ARG BASE=docker.io/library/python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

# --- what is installed, in environments of their own ------------------------------------------------
# Bytecode must not depend on when it was compiled: it names its source by hash, and is never checked against it.
FROM ${BASE} AS tools
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore \
    PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 SOURCE_DATE_EPOCH=315532800 \
    COMPILE="-m compileall -q -j 1 --invalidation-mode unchecked-hash"
COPY requirements/build.txt /requirements/
RUN python3 -m venv /build && /build/bin/pip install -q --require-hashes -r /requirements/build.txt

FROM tools AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY services services
COPY operator operator
RUN /build/bin/pip wheel -q --no-deps --no-build-isolation -w /wheels .

FROM tools AS controller-build
COPY requirements/controller.txt /requirements/
RUN python3 -m venv /opt/controller && /opt/controller/bin/pip install -q --require-hashes --only-binary :all: \
    -r /requirements/controller.txt \
    && cd /opt/controller/lib/python3*/site-packages \
    && rm -rf pyarrow/include pyarrow/src pyarrow/tests pyarrow/*flight* \
    && /opt/controller/bin/python -c "import pyarrow.fs, tink" \
    && /opt/controller/bin/python $COMPILE /opt/controller/lib
COPY --from=wheel /wheels /wheels
RUN /opt/controller/bin/pip install -q --no-deps --no-index /wheels/*.whl \
    && /opt/controller/bin/pip uninstall -q -y pip \
    && /opt/controller/bin/python $COMPILE /opt/controller/lib/python3*/site-packages/quorate* \
    && find /opt/controller -exec touch -h -d @$SOURCE_DATE_EPOCH {} +

FROM tools AS operator-build
COPY requirements/operator.txt /requirements/
RUN python3 -m venv /opt/operator && /opt/operator/bin/pip install -q --require-hashes --only-binary :all: \
    -r /requirements/operator.txt \
    && /opt/operator/bin/python $COMPILE /opt/operator/lib
COPY --from=wheel /wheels /wheels
RUN /opt/operator/bin/pip install -q --no-deps --no-index /wheels/*.whl \
    && /opt/operator/bin/pip uninstall -q -y pip \
    && /opt/operator/bin/python $COMPILE /opt/operator/lib/python3*/site-packages/quorate* \
    && find /opt/operator -exec touch -h -d @$SOURCE_DATE_EPOCH {} +

# What Spark uses of Java: without windows, printers, debuggers.
FROM tools AS java
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-21-jdk-headless \
    && rm -rf /var/lib/apt/lists/*
RUN /usr/lib/jvm/java-21-openjdk-*/bin/jlink --output /opt/java --strip-java-debug-attributes \
    --no-header-files --no-man-pages --compress=zip-6 --generate-cds-archive --add-modules \
    java.se,jdk.crypto.ec,jdk.incubator.vector,jdk.management,jdk.naming.dns,jdk.net,jdk.security.auth,jdk.unsupported,jdk.zipfs \
    && find /opt/java -exec touch -h -d @$SOURCE_DATE_EPOCH {} +

# Spark's shell, server, Hive, machine learning and RocksDB are 170 MB that no job here touches;
# hive-storage-api is what ORC is made of. Tests and headers go as well. Python workers look for PySpark in pyspark.zip
# before the environment, and would compile its sources at each start.
FROM tools AS spark-build
COPY requirements/spark.txt /requirements/
RUN /build/bin/pip wheel -q --no-build-isolation --require-hashes -r /requirements/spark.txt -w /found \
    && python3 -m venv /opt/spark && /opt/spark/bin/pip install -q --no-deps --no-index /found/*.whl && rm -rf /found \
    && cd /opt/spark/lib/python3*/site-packages \
    && rm -rf pyspark/examples pyspark/data pyspark/python/lib/pyspark.zip pyarrow/include pyarrow/src pyarrow/*flight* \
    && cd pyspark/jars && mv hive-storage-api-*.jar .. \
    && rm -f hive-* spark-hive* datanucleus-* derby* spark-connect* scala-compiler-* jline-* rocksdbjni-* \
    spark-mllib* spark-graphx* breeze* spire* algebra_* cats-* JTransforms-* lapack-* arpack* blas-* \
    *-osx-* *-windows-* && mv ../hive-storage-api-*.jar . \
    && find /opt/spark -type d -name tests -prune -exec rm -rf {} + \
    && /opt/spark/bin/python -c "import matplotlib.pyplot, pandas, pyarrow.dataset, pyarrow.parquet, pyspark.sql" \
    && /opt/spark/bin/python $COMPILE /opt/spark/lib
COPY --from=wheel /wheels /wheels
RUN /opt/spark/bin/pip install -q --no-deps --no-index /wheels/*.whl && /opt/spark/bin/pip uninstall -q -y pip \
    && /opt/spark/bin/python $COMPILE /opt/spark/lib/python3*/site-packages/quorate* \
    && find /opt/spark -exec touch -h -d @$SOURCE_DATE_EPOCH {} +

# /opt as a whole is copied: the builder gives the directory that it copies to the time of the build.

# --- what both images share -------------------------------------------------------------------------
FROM ${BASE} AS runtime
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 GRPC_VERBOSITY=NONE
USER 10001:10001
WORKDIR /tmp

# Hadoop asks who is running it, and takes no number for an answer.
FROM ${BASE} AS spark
RUN echo "quorate:x:10001:10001::/tmp:/usr/sbin/nologin" >> /etc/passwd
COPY --from=java /opt /opt
COPY --from=spark-build /opt /opt
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 GRPC_VERBOSITY=NONE HOME=/tmp MPLCONFIGDIR=/tmp \
    JAVA_HOME=/opt/java PATH=/opt/spark/bin:/opt/java/bin:$PATH
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["python", "-m", "quorate.spark.pod"]
CMD ["pipeline", "--help"]

FROM runtime AS operator
COPY --from=operator-build /opt /opt
ENV PATH=/opt/operator/bin:$PATH
ENTRYPOINT ["python", "-m", "quorate_operator.main"]

FROM runtime AS broker
COPY --from=controller-build /opt /opt
ENV PATH=/opt/controller/bin:$PATH
EXPOSE 9092
ENTRYPOINT ["python", "-m", "quorate.cli.main"]
CMD ["broker"]

# The last target is what a build without --target makes.
FROM runtime AS controller
COPY --from=controller-build /opt /opt
ENV PATH=/opt/controller/bin:$PATH
EXPOSE 9093
ENTRYPOINT ["python", "-m", "quorate.cli.main"]
CMD ["controller"]
