# The chapters in JupyterLab, with everything they import, for whoever prepares no Python of their own:
#   docker build -t geometry-of-attention . && docker run --rm -p 127.0.0.1:8888:8888 geometry-of-attention
# A Binder service builds the same file; it names the user and starts JupyterLab by itself. pip reads PIP_EXTRA_INDEX_URL:
# with --build-arg and the address of PyTorch's index of CPU builds, what CUDA would need is not downloaded.
FROM python:3.11-slim-bookworm

ARG NB_USER=reader
ARG NB_UID=1000
ARG PIP_EXTRA_INDEX_URL
ENV USER=${NB_USER} HOME=/srv/${NB_USER}
RUN adduser --home /srv/${NB_USER} --disabled-password --gecos "A reader" --uid ${NB_UID} ${NB_USER}

WORKDIR ${HOME}/geometry-of-attention
COPY . .
# In the versions that the book is tested with.
RUN pip install --no-cache-dir -c constraints.txt -e ".[chapters]" ipykernel jupyterlab notebook \
    && chown -R ${NB_USER} ${HOME}

USER ${NB_USER}
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "chapters"]
