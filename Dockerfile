# syntax=docker/dockerfile:1
# One image with the four commands: manager (the default), runner, toolbox and
# belay. They are static, so the image needs no base system; it holds only them,
# root certificates and a user entry.
ARG GO_VERSION=1.26

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=
WORKDIR /src

# Dependencies change less often than code: their layer is kept.
COPY go.mod go.sum ./
RUN go mod download

COPY api/ api/
COPY cmd/ cmd/
COPY config/crd/ config/crd/
COPY internal/ internal/
RUN mkdir /out && CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags "-s -w -X belay.dev/belay/internal/version.version=${VERSION}" -o /out/ ./cmd/...

FROM gcr.io/distroless/static:nonroot
COPY --from=build /out/manager /out/runner /out/toolbox /out/belay /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/manager"]
