package toolbox

// CheckListen listens and stops at once.
func CheckListen(path string) error {
	l, err := listen(path)
	if err != nil {
		return err
	}
	return l.Close()
}
