package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that runs the server programs. The zero account is the one that runs this process.
type account struct {
	name     string
	uid, gid int
}

// chooseAccount returns ourselves, unless we are root: then the owner of the data where there is some, else postgres, else nobody.
func chooseAccount(data string) (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	if st, ok := stat(filepath.Join(data, versionFile)); ok && st.Uid != 0 {
		return account{name: "of id " + strconv.Itoa(int(st.Uid)), uid: int(st.Uid), gid: int(st.Gid)}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return account{}, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			return account{}, fmt.Errorf("user %s: %w", name, err)
		}
		return account{name: name, uid: uid, gid: gid}, nil
	}
	return account{}, errors.New("postgres does not run as root, and there is neither a user postgres nor nobody")
}

// RunAs is the user that server programs run as: nil for ourselves, unless we are root.
func RunAs() (*syscall.Credential, error) {
	a, err := chooseAccount("")
	if err != nil {
		return nil, err
	}
	return a.credential(), nil
}

func (a account) self() bool { return a.uid == 0 }

func (a account) credential() *syscall.Credential {
	if a.self() {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid), Groups: []uint32{uint32(a.gid)}}
}

// own makes dir with access for the account alone.
func (a account) own(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if a.self() {
		return nil
	}
	return os.Chown(dir, a.uid, a.gid)
}

// reaches says whether the account may pass through dir and all above it.
func (a account) reaches(dir string) bool {
	if a.self() {
		return true
	}
	for ; ; dir = filepath.Dir(dir) {
		st, ok := stat(dir)
		if !ok {
			return false
		}
		bit := uint32(0o001)
		switch {
		case int(st.Uid) == a.uid:
			bit = 0o100
		case int(st.Gid) == a.gid:
			bit = 0o010
		}
		if uint32(st.Mode)&bit == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

func stat(path string) (*syscall.Stat_t, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return st, ok
}
