package ident

import "testing"

func TestEncodeKeepsMarkup(t *testing.T) {
	t.Parallel()
	got, err := Encode(map[string]string{"xml": "<a b='1'>&</a>"})
	if want := `{"xml":"<a b='1'>&</a>"}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if _, err := Encode(func() {}); err == nil {
		t.Error("encoded a function")
	}
}
