package chaos

import (
	"io"
	"net/http"
)

// control adds the endpoints under /_chaos/, by which a rehearsal is watched and directed.
func (s *Server) control(mux *http.ServeMux) {
	mux.HandleFunc("GET /_chaos/requests", func(w http.ResponseWriter, r *http.Request) {
		requests := s.Requests()
		if leg := r.URL.Query().Get("leg"); leg != "" {
			kept := requests[:0]
			for _, q := range requests {
				if q.Leg == leg {
					kept = append(kept, q)
				}
			}
			requests = kept
		}
		writeJSON(w, http.StatusOK, map[string]any{"requests": requests})
	})
	mux.HandleFunc("GET /_chaos/bill", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"legs": s.Bill()})
	})
	mux.HandleFunc("POST /_chaos/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_chaos/script", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			writeJSON(w, http.StatusBadRequest, map[string]any{"error": "read the script: " + err.Error()})
			return
		}
		script, err := ParseScript(text)
		if err == nil {
			err = s.Replace(script)
		}
		if err != nil {
			writeJSON(w, http.StatusBadRequest, map[string]any{"error": err.Error()})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/_chaos/", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusNotFound, map[string]any{
			"error": "control endpoints are GET /_chaos/requests, GET /_chaos/bill, POST /_chaos/reset and POST /_chaos/script",
		})
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(indented(v), '\n')) // a client that left needs no answer
}
