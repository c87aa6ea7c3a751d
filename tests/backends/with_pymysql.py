"""A plugin of pytest (`-p tests.backends.with_pymysql`): PyMySQL stands for mysqlclient in this process."""

import pymysql

pymysql.install_as_MySQLdb()
