package chaos

import (
	"bytes"
	"encoding/base64"
	"image"
	_ "image/gif"  // formats that the API accepts
	_ "image/jpeg" // formats that the API accepts
	_ "image/png"  // formats that the API accepts
	"slices"
)

// The limits of the guide "Vision", on the base64 text as the API measures it.
const (
	imageBytes       = 5 << 20
	imagePixels      = 8000
	imageManyPixels  = 2000
	imageMany        = 20
	imagesPerRequest = 100
)

// imageFact is what the limits over all images of a request need to know of one.
type imageFact struct {
	path   string
	pixels int // of the longer side; 0 if unknown
}

func (c *anthropicCheck) image(path string, block map[string]any) {
	c.known(path, block, "type", "source", "cache_control")
	c.cacheControl(path, block)
	source, _ := block["source"].(map[string]any)
	fact := imageFact{path: path}
	switch source["type"] {
	case "url", "file":
	case "base64":
		fact.pixels = c.base64Image(at(path, "source"), source)
	default:
		c.bad(at(path, "source.type"), "must be base64, url or file")
	}
	c.images = append(c.images, fact)
}

// base64Image checks an image's data and returns the length of its longer side in pixels.
func (c *anthropicCheck) base64Image(path string, source map[string]any) int {
	kind, _ := source["media_type"].(string)
	if !slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, kind) {
		c.bad(at(path, "media_type"), "must be image/jpeg, image/png, image/gif or image/webp")
		return 0
	}
	text, _ := source["data"].(string)
	if len(text) > imageBytes {
		c.bad(at(path, "base64"), "image exceeds 5 MB maximum: %d bytes > %d bytes", len(text), imageBytes)
		return 0
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) == 0 {
		c.bad(at(path, "base64"), "invalid base64 data")
		return 0
	}
	if kind == "image/webp" {
		return 0 // the standard library does not read its dimensions
	}
	config, format, err := image.DecodeConfig(bytes.NewReader(data))
	switch {
	case err != nil:
		c.bad(path, "could not process image")
		return 0
	case "image/"+format != kind:
		c.bad(at(path, "media_type"), "the image was specified as %s, but appears to be image/%s", kind, format)
	}
	return max(config.Width, config.Height)
}

// imageLimits checks what depends on all images together.
func (c *anthropicCheck) imageLimits() {
	if n := len(c.images); n > imagesPerRequest {
		c.bad("messages", "too many images: %d > %d", n, imagesPerRequest)
	}
	most := imagePixels
	if len(c.images) > imageMany {
		most = imageManyPixels
	}
	for _, fact := range c.images {
		if fact.pixels > most {
			c.bad(at(fact.path, "source.base64"), "image dimensions exceed max allowed size of %d pixels for %d images", most, len(c.images))
		}
	}
}
