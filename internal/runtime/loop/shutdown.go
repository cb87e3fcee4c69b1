package loop

import "context"

// WithShutdown returns a context that ends with the cause ErrShutdown when ctx ends, for whatever reason. It is for the
// callers of Run whose own context ends when their process is asked to stop.
func WithShutdown(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(ErrShutdown) })
	return out, func() {
		stop()
		cancel(nil)
	}
}
