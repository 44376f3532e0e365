# One file, a target per image:
#   docker build --target controller -t quorate:0.1.0 .
#   docker build --target operator -t quorate-operator:0.1.0 .
#   docker build --target broker -t quorate-broker:0.1.0 .          (the chart runs brokers on the controllers' image)
#   docker build --target spark -t quorate-spark:0.1.0 .            (with a JRE and Spark: large)
ARG BASE=python:3.13-slim

# --- what is installed, in environments of their own ------------------------------------------------
FROM ${BASE} AS tools
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore

# What others wrote, a list for each image: it changes more rarely than pyproject.toml, and what is
# installed from it is kept as long as it is the same.
FROM tools AS lists
WORKDIR /lists
COPY pyproject.toml ./
RUN python3 -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
more = p['optional-dependencies']; \
extras = {'controller': ('telemetry', 'migration'), 'operator': ('operator',), 'spark': ('spark',)}; \
[open(name + '.txt', 'w').write('\n'.join(sum((more[each] for each in names), p['dependencies']))) \
for name, names in extras.items()]" && touch -d @0 ./*.txt

FROM tools AS wheel
WORKDIR /source
RUN pip install -q hatchling
COPY pyproject.toml README.md LICENSE ./
COPY services services
COPY operator operator
RUN pip wheel -q --no-deps --no-build-isolation -w /wheels .

FROM tools AS controller-build
COPY --from=lists /lists/controller.txt /
RUN python3 -m venv /opt/controller && /opt/controller/bin/pip install -q -r /controller.txt \
    && /opt/controller/bin/python -m compileall -q -j 0 /opt/controller/lib
COPY --from=wheel /wheels /wheels
RUN /opt/controller/bin/pip install -q --no-deps /wheels/*.whl \
    && /opt/controller/bin/pip uninstall -q -y pip \
    && /opt/controller/bin/python -m compileall -q -j 0 /opt/controller/lib

FROM tools AS operator-build
COPY --from=lists /lists/operator.txt /
RUN python3 -m venv /opt/operator && /opt/operator/bin/pip install -q -r /operator.txt \
    && /opt/operator/bin/python -m compileall -q -j 0 /opt/operator/lib
COPY --from=wheel /wheels /wheels
RUN /opt/operator/bin/pip install -q --no-deps /wheels/*.whl \
    && /opt/operator/bin/pip uninstall -q -y pip \
    && /opt/operator/bin/python -m compileall -q -j 0 /opt/operator/lib

# What Spark uses of Java: without windows, printers, debuggers.
FROM tools AS java
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-21-jdk-headless \
    && rm -rf /var/lib/apt/lists/*
RUN /usr/lib/jvm/java-21-openjdk-*/bin/jlink --output /opt/java --strip-java-debug-attributes \
    --no-header-files --no-man-pages --compress=zip-6 --generate-cds-archive --add-modules \
    java.se,jdk.crypto.ec,jdk.incubator.vector,jdk.management,jdk.naming.dns,jdk.net,jdk.security.auth,jdk.unsupported,jdk.zipfs

# Spark's shell, server, Hive, machine learning and RocksDB are 170 MB that no job here touches;
# hive-storage-api is what ORC is made of. Tests and headers go as well.
FROM tools AS spark-build
COPY --from=lists /lists/spark.txt /
RUN python3 -m venv /opt/spark && /opt/spark/bin/pip install -q -r /spark.txt \
    && cd /opt/spark/lib/python3*/site-packages \
    && rm -rf pyspark/examples pyspark/data pyarrow/include pyarrow/src pyarrow/*flight* \
    && cd pyspark/jars && mv hive-storage-api-*.jar .. \
    && rm -f hive-* spark-hive* datanucleus-* derby* spark-connect* scala-compiler-* jline-* rocksdbjni-* \
    spark-mllib* spark-graphx* breeze* spire* algebra_* cats-* JTransforms-* lapack-* arpack* blas-* \
    *-osx-* *-windows-* && mv ../hive-storage-api-*.jar . \
    && find /opt/spark -type d -name tests -prune -exec rm -rf {} + \
    && /opt/spark/bin/python -c "import matplotlib.pyplot, pandas, pyarrow.dataset, pyarrow.parquet, pyspark.sql" \
    && /opt/spark/bin/python -m compileall -q -j 0 /opt/spark/lib
COPY --from=wheel /wheels /wheels
RUN /opt/spark/bin/pip install -q --no-deps /wheels/*.whl && /opt/spark/bin/pip uninstall -q -y pip \
    && /opt/spark/bin/python -m compileall -q -j 0 /opt/spark/lib

# --- what both images share -------------------------------------------------------------------------
FROM ${BASE} AS runtime
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 GRPC_VERBOSITY=NONE
USER 10001:10001
WORKDIR /tmp

# Hadoop asks who is running it, and takes no number for an answer.
FROM ${BASE} AS spark
RUN echo "quorate:x:10001:10001::/tmp:/usr/sbin/nologin" >> /etc/passwd
COPY --from=java /opt/java /opt/java
COPY --from=spark-build /opt/spark /opt/spark
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 GRPC_VERBOSITY=NONE HOME=/tmp MPLCONFIGDIR=/tmp \
    JAVA_HOME=/opt/java PATH=/opt/spark/bin:/opt/java/bin:$PATH
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["python", "-m", "quorate.spark.pod"]
CMD ["pipeline", "--help"]

FROM runtime AS operator
COPY --from=operator-build /opt/operator /opt/operator
ENV PATH=/opt/operator/bin:$PATH
ENTRYPOINT ["python", "-m", "quorate_operator.main"]

FROM runtime AS broker
COPY --from=controller-build /opt/controller /opt/controller
ENV PATH=/opt/controller/bin:$PATH
EXPOSE 9092
ENTRYPOINT ["python", "-m", "quorate.cli.main"]
CMD ["broker"]

# The last target is what a build without --target makes.
FROM runtime AS controller
COPY --from=controller-build /opt/controller /opt/controller
ENV PATH=/opt/controller/bin:$PATH
EXPOSE 9093
ENTRYPOINT ["python", "-m", "quorate.cli.main"]
CMD ["controller"]
