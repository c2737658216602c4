// An identity verification service in Go with gorilla/websocket, written from docs/service-interface.md alone. Where that is silent: the
// token of a registration comes in a cookie, the channel is /api/v1/ws/device and takes it in the query as `access_token`, and each
// channel names the Connection for the next one. Several notifications come in one binary frame, as an array, with numbers as kinds.
// Arguments: user and password of the operator.
package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

var mutex sync.Mutex
var codes = map[string]string{}
var keys = map[string][]string{}
var connections = map[string]string{}
var upgrader = websocket.Upgrader{}
var number = 0

func secret(size int) string {
	bytes := make([]byte, size)
	rand.Read(bytes)
	return hex.EncodeToString(bytes)
}

func answer(w http.ResponseWriter, status int, body interface{}) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, words string) {
	answer(w, status, map[string]string{"message": words})
}

func allowed(r *http.Request, permission string) bool {
	given := r.Header.Get("Authorization")
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(os.Args[1]+":"+os.Args[2]))
	if given == basic {
		return true
	}
	mutex.Lock()
	defer mutex.Unlock()
	for _, each := range keys[strings.TrimPrefix(given, "ApiKey ")] {
		if each == permission {
			return true
		}
	}
	return false
}

func pairing(w http.ResponseWriter, r *http.Request) {
	if !allowed(r, "ephemeral_device:write") {
		refuse(w, 403, "not yours")
		return
	}
	code := "tr-" + secret(14)
	mutex.Lock()
	codes[code] = r.URL.Query().Get("workflowId")
	mutex.Unlock()
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "http://%s/mobile?authorization=Token%%20%s&workflowId=%s\n", r.Host, code, r.URL.Query().Get("workflowId"))
}

func makeKey(w http.ResponseWriter, r *http.Request) {
	if !allowed(r, "") {
		refuse(w, 401, "not yours")
		return
	}
	var wanted struct {
		Name        string   `json:"name"`
		Permissions []string `json:"permissions"`
	}
	json.NewDecoder(r.Body).Decode(&wanted)
	key := secret(24)
	mutex.Lock()
	keys[key] = wanted.Permissions
	mutex.Unlock()
	answer(w, 200, map[string]interface{}{"id": secret(4), "token": key, "name": wanted.Name, "permissions": wanted.Permissions})
}

func deeplink(w http.ResponseWriter, r *http.Request) {
	if !allowed(r, "deeplink:write") {
		refuse(w, 403, "deeplink:write is missing")
		return
	}
	now := time.Now().UTC()
	answer(w, 201, map[string]interface{}{
		"url":         fmt.Sprintf("http://%s/mobile?authorization=Token%%20%s&sessionId=%s", r.Host, secret(14), secret(12)),
		"createdAt":   now.Format(time.RFC3339),
		"expiresAt":   now.Add(time.Hour).Format(time.RFC3339),
		"workflowIds": r.URL.Query()["workflowId"],
	})
}

func register(w http.ResponseWriter, r *http.Request) {
	given := r.Header.Get("Authorization")
	mutex.Lock()
	_, known := codes[strings.TrimPrefix(given, "Token ")]
	delete(codes, strings.TrimPrefix(given, "Token "))
	mutex.Unlock()
	if !known && !allowed(r, "ephemeral_device:write") {
		fmt.Println("lost")
		refuse(w, 401, "code spent")
		return
	}
	var device struct {
		DeviceID string `json:"deviceId"`
	}
	json.NewDecoder(r.Body).Decode(&device)
	token := secret(20)
	mutex.Lock()
	connections[token] = device.DeviceID
	mutex.Unlock()
	http.SetCookie(w, &http.Cookie{Name: "device_connection", Value: token, Path: "/", HttpOnly: true})
	answer(w, 201, map[string]interface{}{"ok": true, "deviceId": device.DeviceID})
}

func channel(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("access_token")
	mutex.Lock()
	device, known := connections[token]
	delete(connections, token)
	next := secret(20)
	if known {
		connections[next] = device
	}
	mutex.Unlock()
	if !known {
		refuse(w, 403, "this Connection has opened a channel already")
		return
	}
	socket, err := upgrader.Upgrade(w, r, http.Header{"X-Next-Connection": {next}})
	if err != nil {
		return
	}
	gone := make(chan bool)
	go func() {
		for {
			if _, _, err := socket.ReadMessage(); err != nil {
				close(gone)
				return
			}
		}
	}()
	for {
		select {
		case <-gone:
			socket.Close()
			return
		case <-time.After(400 * time.Millisecond):
		}
		batch := []map[string]interface{}{}
		mutex.Lock()
		for each := 0; each < 2; each++ {
			number++
			batch = append(batch, map[string]interface{}{"kind": 100 + number%3, "seq": number, "sentAt": time.Now().UnixMilli()})
			fmt.Println("sent", device, number, 100+number%3)
		}
		mutex.Unlock()
		body, _ := json.Marshal(batch)
		socket.WriteMessage(websocket.BinaryMessage, body)
	}
}

func main() {
	http.HandleFunc("/api/deeplink/qrcode", pairing)
	http.HandleFunc("/api/apikey", makeKey)
	http.HandleFunc("/api/v1/deeplink", deeplink)
	http.HandleFunc("/api/device/connection", register)
	http.HandleFunc("/api/v1/ws/device", channel)
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	fmt.Println("port", listener.Addr().(*net.TCPAddr).Port)
	http.Serve(listener, nil)
}
