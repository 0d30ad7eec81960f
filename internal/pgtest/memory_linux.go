package pgtest

import "syscall"

const (
	inMemory   = "/dev/shm"
	enoughFree = 4 << 30 // bytes
)

// memory is where files are in the memory of the machine, empty where there is not enough. A database is some 300 files; on ext4, which
// passes over the inodes of files that were just removed, most of a run's time went into making those of each test.
func memory() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(inMemory, &fs); err != nil || uint64(fs.Bsize)*fs.Bavail < enoughFree {
		return ""
	}
	return inMemory
}
