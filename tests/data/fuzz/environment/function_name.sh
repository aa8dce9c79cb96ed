set BASH_FUNC_READS=8; export X=$Y
