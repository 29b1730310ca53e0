# An HTTP server of trained runs (docs/serving.md):
#   docker build -t s2s .
#   docker run --rm -p 8080:8080 -v "$PWD/runs:/runs:ro" s2s /runs/translate
FROM python:3.13-slim

WORKDIR /opt/s2s
COPY . .
# constraints.txt pins torch; of this version, pip prefers the CPU build to PyPI's with CUDA
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt '.[serve]'

RUN useradd --create-home --uid 1000 s2s
USER s2s
WORKDIR /home/s2s
VOLUME /runs
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["s2s", "serve", "--host", "0.0.0.0", "--port", "8080"]
CMD ["/runs/translate"]
